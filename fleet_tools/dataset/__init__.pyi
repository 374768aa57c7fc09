from .manifest import AttemptRecord as AttemptRecord
from .reader import Dataset as Dataset
from .writer import DatasetWriter as DatasetWriter
