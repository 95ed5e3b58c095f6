"""Settings of the sample service."""

HOST = "127.0.0.1"
PORT = 3000
DEBUG = False
GREETING = "Hello"
