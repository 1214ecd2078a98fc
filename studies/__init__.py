"""The bundled studies, one TOML file each."""
