"""Parts for views of scenes: the camera, and the tools over the picture.

`protocol.SceneView` says what the parts ask of a view. A view of any kind makes a
`camera_rig.CameraRig`, and a `tool.ToolSet` of the tools that it wants: `Navigate`,
`PathTool`, `Crop`, `Frustums`, or its own subclasses of `tool.Tool`.
"""
