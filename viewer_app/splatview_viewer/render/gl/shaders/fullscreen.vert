// One triangle that covers the whole target; needs no vertex data.

void main() {
    gl_Position = vec4(vec2((gl_VertexID << 1) & 2, gl_VertexID & 2) * 2.0 - 1.0, 0.0, 1.0);
}
