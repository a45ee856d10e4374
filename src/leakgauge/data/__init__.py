"""Read tables, arrays and images; split their records; encode them."""

from leakgauge.data.arrays import from_arrays, read_arrays
from leakgauge.data.encoding import encode
from leakgauge.data.fingerprints import fingerprint
from leakgauge.data.image_sources import (
    Images,
    read_image_arrays,
    read_image_folder,
    read_image_parquet,
)
from leakgauge.data.named import data_folder, randhie
from leakgauge.data.read import read_table
from leakgauge.data.source import DATASETS, Source, open_data
from leakgauge.data.split import Split, split_records
from leakgauge.data.table import Roles, Table, make_table

__all__ = [
    "DATASETS", "Images", "Roles", "Source", "Split", "Table", "data_folder", "encode",
    "fingerprint", "from_arrays", "make_table", "open_data", "randhie", "read_arrays",
    "read_image_arrays", "read_image_folder", "read_image_parquet", "read_table", "split_records",
]  # fmt: skip
