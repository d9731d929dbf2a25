"""What commands print: lines, tables, progress displays and errors."""
