"""Views of episodes and datasets: recordings in Meshcat, videos."""
