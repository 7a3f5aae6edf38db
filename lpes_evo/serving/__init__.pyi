from ._arguments import vllm_arguments as vllm_arguments
from ._export import ExportResult as ExportResult, export_model as export_model
from ._gguf_factors import write_factors as write_factors
from ._kept import from_pretrained as from_pretrained
from ._modelling import ModellingCode as ModellingCode, modelling_code as modelling_code
from ._vllm import register as register
from ._vllm_rotary import ScalingWorker as ScalingWorker, scale_layers as scale_layers
