"""`groups`: list, describe and delete consumer groups; reset and delete their offsets."""
