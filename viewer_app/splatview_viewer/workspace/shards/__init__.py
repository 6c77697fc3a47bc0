"""Scenes whose Gaussians are spread over the processes of one training, shown as one."""
