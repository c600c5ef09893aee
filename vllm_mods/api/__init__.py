"""What the package's front door opens to: the verbs of the library and the command line."""
