"""What is drawn with Dear ImGui around and over the pictures: the panel and its parts, words, colours."""
