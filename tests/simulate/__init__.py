"""A seeded simulator: threads are driven, killed, cut off and answered wrongly, and the laws hold."""
