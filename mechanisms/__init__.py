"""The built-in mechanisms, one file each, written only against the public contract."""
