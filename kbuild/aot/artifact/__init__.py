"""What is installed: tables of variants, the launcher and the Python module made of them, archives of cubins,
and the wheel."""
