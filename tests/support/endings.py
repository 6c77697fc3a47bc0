"""A training as text, for the tests of how one ends: it publishes, and stops for a word."""

from __future__ import annotations

BEGIN = """
import gc, multiprocessing, os, signal, sys, threading, time, warnings
import torch, splatview
warnings.simplefilter("ignore", DeprecationWarning)  # of forking while other threads run
image, step = torch.zeros((8, 8), dtype=torch.uint8), 0
def publish():
    global step
    step += 1
    image.fill_(step % 256)
    splatview.publish(image, step=step)
def said(text):
    print(text, flush=True)
    assert sys.stdin.readline()
publish()
"""
