"""One rule a file: a pure function of a view of the attempt that returns a finding with evidence."""
