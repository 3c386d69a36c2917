"""Speed, as ratios against named rivals in one run on one machine."""
