/* Upsampling of planes by whole factors, as torch.nn.Upsample. */
#include "nn/onnx_graph.h"

enum { MOST_SCALE = 1 << 10 };

/* A width of 0 becomes the height. */
static struct sl__upsample2d parameters(const struct sl__layer *layer) {
  const struct sl_upsample2d_options *o = layer->options;
  return (struct sl__upsample2d){.scale_h = o->scale_h,
                                 .scale_w = o->scale_w ? o->scale_w : o->scale_h,
                                 .bilinear = o->bilinear};
}

static enum sl_status infer(struct sl__layer *layer) {
  struct sl__upsample2d u = parameters(layer);
  const struct sl_shape *in = &layer->in[0];
  char text[96];
  enum sl_status status = sl__input_alone(layer);
  if (status != SL_OK) return status;
  if (in->ndim != 3)
    return sl__layer_fail(layer, SL_BAD_SHAPE, "takes [C, H, W], not %s",
                          sl_shape_text(in, text, sizeof text));
  if (u.scale_h < 1 || u.scale_w < 1 || u.scale_h > MOST_SCALE || u.scale_w > MOST_SCALE)
    return sl__layer_fail(layer, SL_BAD_ARGUMENT, "scale is %dx%d; each must be from 1 to %d",
                          u.scale_h, u.scale_w, MOST_SCALE);
  layer->out = SL_SHAPE(in->dim[0], in->dim[1] * u.scale_h, in->dim[2] * u.scale_w);
  layer->flops = 4.0 * (double)sl_shape_count(&layer->out);
  return SL_OK;
}

static enum sl_status forward(const struct sl__layer *layer, struct sl__pass *p) {
  struct sl__upsample2d u = parameters(layer);
  return sl__upsample2d_forward(p->context, &p->launch, p->x[0], p->y, &u);
}

static enum sl_status backward_data(const struct sl__layer *layer, struct sl__pass *p) {
  struct sl__upsample2d u = parameters(layer);
  p->launch.accumulate = p->add_dx[0];
  return sl__upsample2d_backward(p->context, &p->launch, p->dy, p->dx[0], &u);
}

static const char *onnx_write(const struct sl__layer *layer, struct sl__onnx_writer *w) {
  struct sl__upsample2d u = parameters(layer);
  float *values;
  const char *x = sl__onnx_input(w, 0),
             *scales = sl__onnx_reals(w, "scales", &SL_SHAPE(4), &values);
  if (values) {
    values[0] = values[1] = 1;
    values[2] = (float)u.scale_h;
    values[3] = (float)u.scale_w;
  }
  return sl__onnx_node(
      w, NULL, "Resize", SL__ONNX_NAMES(x, "", scales),
      SL__ONNX_ATTRIBUTES(
          {.name = "coordinate_transformation_mode",
           .type = SL__ONNX_S,
           .s = u.bilinear ? "half_pixel" : "asymmetric"},
          {.name = "mode", .type = SL__ONNX_S, .s = u.bilinear ? "linear" : "nearest"},
          {.name = "nearest_mode", .type = SL__ONNX_S, .s = "floor"}));
}

static const struct sl_field fields[] = {SL_FIELD(sl_upsample2d_options, INT, scale_h),
                                         SL_FIELD(sl_upsample2d_options, INT, scale_w),
                                         SL_FIELD(sl_upsample2d_options, BOOL, bilinear),
                                         {0}};

const struct sl__layer_kind sl__upsample2d_kind = {
    .name = "upsample2d",
    .about = "Enlargement by whole factors: [C, H, W] -> [C, H scale_h, W scale_w]",
    .keys =
        "scale_h: from 1 to 1024; required\n"
        "scale_w: scale_h\n"
        "bilinear: instead of repeated pixels; false\n",
    .options_size = sizeof(struct sl_upsample2d_options),
    .fields = fields,
    .infer = infer,
    .forward = forward,
    .backward_data = backward_data,
    .onnx_write = onnx_write};

enum sl_status sl_upsample2d(struct sl_model *model, const char *name,
                             const struct sl_upsample2d_options *options) {
  return sl__layer_append(model, name, &sl__upsample2d_kind, options);
}
