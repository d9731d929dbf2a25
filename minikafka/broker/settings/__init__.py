"""The settings of a broker and of the topics that it hosts, with their sources, and changes at run time."""
