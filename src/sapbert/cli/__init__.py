"""The command line: one verb a stage, each thin — parse, call, report."""
