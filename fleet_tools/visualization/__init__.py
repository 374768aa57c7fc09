"""What people look at: views from outside, drawings on them, videos, pages of data sets."""
