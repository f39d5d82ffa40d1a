"""The command line: arguments -> request -> one call into the pipeline -> print."""
