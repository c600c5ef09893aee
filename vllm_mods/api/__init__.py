"""What the package's front door opens to: one module for each verb of the library and the command line."""
