"""Export an encoder to ONNX, quantize it, and restore weights from an export."""
