"""What the mirror brings on this machine: arms, points, runs that can be interrupted, and what they show."""
