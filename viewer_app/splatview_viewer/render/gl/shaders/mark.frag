// Marks the pixels that are finished: writes depth 0 there, so that the depth test rejects what comes later.

uniform sampler2D finished;   // the picture so far
uniform float enough;         // alpha from which a pixel is finished

void main() {
    if (texelFetch(finished, ivec2(gl_FragCoord.xy), 0).a < enough) discard;
    gl_FragDepth = 0.0;
}
