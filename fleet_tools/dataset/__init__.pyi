from .dataset_folder import Dataset as Dataset
from .dataset_folder import DatasetWriter as DatasetWriter
from .manifest import AttemptRecord as AttemptRecord
