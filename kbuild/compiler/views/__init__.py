"""What people see of layouts and analyses: tables, facts, drawings, and comments in printed IR."""
