"""Legalization: from what the user wrote to what the chip can do."""
