"""The programs of the door, and what each of its words promises."""
