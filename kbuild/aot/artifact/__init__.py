"""What a wheel installs: tables of variants, the launcher and Python module made from them, archives of
cubins, and the wheel itself."""
