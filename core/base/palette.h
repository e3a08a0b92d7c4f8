/* Colours of layers in traces: the same for StarPU's own files (ViTE) and for starling-trace. */
#ifndef SL_CORE_BASE_PALETTE_H
#define SL_CORE_BASE_PALETTE_H

/* The part of a layer's work that a task does. */
enum sl__work {
  SL__WORK_FORWARD,
  SL__WORK_BACKWARD_DATA,
  SL__WORK_BACKWARD_WEIGHT,
  SL__WORK_UPDATE
};

/* 0xrrggbb: the layer gives the hue; later work of a step is darker. Forward is light enough for
 * black text, backward-weight and update are dark enough for white text. */
static inline unsigned sl__layer_colour(int layer, enum sl__work work) {
  static const unsigned hues[] = {0x6cb6f0, 0xf2ae49, 0x54c9a0, 0xea8fbf, 0xd6c93a, 0xa795ee,
                                  0xf28a6a, 0x5cc8d8, 0xa6c96a, 0xc79a7b, 0xf0a0a0, 0x9fb0c0};
  static const unsigned shares[] = {100, 80, 60,
                                    42}; /* percent of the brightness, by enum sl__work */
  unsigned count = sizeof hues / sizeof *hues, share = shares[work];
  unsigned hue = hues[(unsigned)layer % count];
  /* more layers: the same hues with red, green and blue exchanged, so that 36 layers differ */
  for (unsigned turn = (unsigned)layer / count % 3; turn; turn--)
    hue = hue >> 8 | (hue & 255) << 16;
  return (hue >> 16 & 255) * share / 100 << 16 | (hue >> 8 & 255) * share / 100 << 8 |
         (hue & 255) * share / 100;
}

#endif
