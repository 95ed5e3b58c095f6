"""LoopBench: the same questions to every agent loop, answered by what really happened."""
