"""The commands, a file each: thin, with heavy imports inside them, so that help answers at once."""
