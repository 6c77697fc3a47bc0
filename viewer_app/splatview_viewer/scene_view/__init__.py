"""Parts for views of scenes: their camera, and the tools that users have over a picture.

`protocol.SceneView` says what the parts ask of a view. A view of any kind makes a
`camera_rig.CameraRig`, and a `tool.ToolSet` of the tools that it wants: `Navigate`,
`PathTool`, `Crop`, `Frustums`, or its own subclasses of `tool.Tool`.
"""
