// The colour of a picture at a place that moved.vert found. Beyond the picture its edge goes on.

uniform sampler2D photo;      // colours multiplied by alpha, top row first
in vec2 v_source;
in float v_cut;
out vec4 f_color;

void main() {
    if (v_cut > 0.0) discard;
    f_color = texture(photo, v_source / vec2(textureSize(photo, 0)));
}
