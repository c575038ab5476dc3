"""The commands of `python -m baracuda_py`, a module each; `main.py` finds the command and tells failures."""
