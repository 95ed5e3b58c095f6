"""What is a cut reply (law 7): a pure function of the core, which these tests import."""
