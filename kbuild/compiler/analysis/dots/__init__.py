"""What dots have in common with what makes their operands, and with each other."""
