"""The view of training cameras."""
