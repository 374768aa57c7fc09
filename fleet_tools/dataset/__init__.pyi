from .dataset_folder import Dataset as Dataset
from .dataset_folder import DatasetWriter as DatasetWriter
from .stored_episode import AttemptRecord as AttemptRecord
