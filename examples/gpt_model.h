/* Decoder-only transformers: GPT-2 (Radford et al. 2019) and Llama (Touvron et al., arXiv
 * 2302.13971; grouped queries as in Llama 2 and 3). */
#ifndef SL_EXAMPLES_GPT_MODEL_H
#define SL_EXAMPLES_GPT_MODEL_H

#include <starling.h>

enum gpt_style {
  GPT_STYLE_GPT2, /* learned positions, layer norm, GELU (tanh form), biases, a tied head */
  GPT_STYLE_LLAMA /* rotary positions, RMS norm, SwiGLU, no biases, a head of its own */
};

struct gpt_options {
  enum gpt_style style;
  int64_t layers, heads, width, vocabulary;
  int64_t kv_heads; /* 0: as many as heads */
  int64_t ffn;      /* inner width of the feed-forward part; 0: 4 widths, Llama: 8/3, rounded up to
                       a multiple of 32 */
  int64_t context;  /* longest sequence, in tokens */
  float dropout;
  float rope_base; /* Llama; 0: 10000 */
  float epsilon;   /* of the norms; 0: 1e-5 */
  bool own_head;   /* GPT-2: the head does not share the embedding's weight */
  bool tied;       /* Llama: it does */
};

/* Of the feed-forward part. */
int64_t gpt_inner_width(const struct gpt_options *options);

/* Appends the layers: samples of i32 [T] -> logits [T, vocabulary]. Block i's layers are the group
 * hI and have names hI.SUFFIX. init other than the default: of all weights, instead of GPT-2's
 * N(0, 0.02). */
enum sl_status gpt_build(struct sl_model *model, const struct gpt_options *options,
                         enum sl_init init);

#endif
