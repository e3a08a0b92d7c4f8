/* Upsampling of planes, and of rows, which are planes of one row, by whole factors, as
 * torch.nn.Upsample. */
#include "nn/onnx_graph.h"

enum { MOST_SCALE = 1 << 10 };

static bool is_1d(const struct sl__layer *layer) { return layer->kind == &sl__upsample1d_kind; }

/* A width of 0 becomes the height. */
static struct sl__upsample2d parameters(const struct sl__layer *layer) {
  const struct sl_upsample2d_options *o = layer->options;
  const struct sl_upsample1d_options *row = layer->options;
  if (is_1d(layer))
    return (struct sl__upsample2d){.scale_h = 1, .scale_w = row->scale, .bilinear = row->linear};
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
  if (in->ndim != (is_1d(layer) ? 2 : 3))
    return sl__layer_fail(layer, SL_BAD_SHAPE, "takes %s, not %s",
                          is_1d(layer) ? "[C, L]" : "[C, H, W]",
                          sl_shape_text(in, text, sizeof text));
  if (is_1d(layer) && (u.scale_w < 1 || u.scale_w > MOST_SCALE))
    return sl__layer_fail(layer, SL_BAD_ARGUMENT, "scale is %d; it must be from 1 to %d", u.scale_w,
                          MOST_SCALE);
  if (u.scale_h < 1 || u.scale_w < 1 || u.scale_h > MOST_SCALE || u.scale_w > MOST_SCALE)
    return sl__layer_fail(layer, SL_BAD_ARGUMENT, "scale is %dx%d; each must be from 1 to %d",
                          u.scale_h, u.scale_w, MOST_SCALE);
  layer->out = *in;
  if (!is_1d(layer)) layer->out.dim[1] *= u.scale_h;
  layer->out.dim[in->ndim - 1] *= u.scale_w;
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
             *scales = sl__onnx_reals(w, "scales", &SL_SHAPE(is_1d(layer) ? 3 : 4), &values);
  if (values) {
    values[0] = values[1] = 1;
    values[2] = (float)(is_1d(layer) ? u.scale_w : u.scale_h);
    if (!is_1d(layer)) values[3] = (float)u.scale_w;
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

static const char keys[] =
    "scale_h: from 1 to 1024; required\n"
    "scale_w: scale_h\n"
    "bilinear: instead of repeated pixels; false\n";

static const struct sl_field row_fields[] = {SL_FIELD(sl_upsample1d_options, INT, scale),
                                             SL_FIELD(sl_upsample1d_options, BOOL, linear),
                                             {0}};

static const char row_keys[] =
    "scale: from 1 to 1024; required\n"
    "linear: instead of repeated values; false\n";

#define FUNCTIONS                                                                                  \
  .infer = infer, .forward = forward, .backward_data = backward_data, .onnx_write = onnx_write

SL__KIND_OF(upsample2d, sl_upsample2d_options, fields, keys,
            .about = "Enlargement by whole factors: [C, H, W] -> [C, H scale_h, W scale_w]",
            FUNCTIONS)
SL__KIND_OF(upsample1d, sl_upsample1d_options, row_fields, row_keys,
            .about = "Enlargement by a whole factor: [C, L] -> [C, L scale]", FUNCTIONS)
