"""What `help(bc.rms_norm)` shows: made from the page when it is asked for, so that docstrings cost no import time."""
