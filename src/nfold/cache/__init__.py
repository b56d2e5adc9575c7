"""What was measured of a program, kept in the user's cache folder and found by all that it hangs on."""

from nfold.cache.measurement_key import code_of_nfold, key_of, this_machine
from nfold.cache.measurement_store import Store
from nfold.cache.read_recorder import ReadRecorder, content_of

__all__ = ["ReadRecorder", "Store", "code_of_nfold", "content_of", "key_of", "this_machine"]
