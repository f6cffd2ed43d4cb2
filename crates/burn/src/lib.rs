//! Normalized attention (NAP) as a layer for [burn](https://burn.dev).
//!
//! Softmax makes every attention output an average of the values. NAP divides each row of logits
//! by its deviation instead, so weights can be negative and one head can, say, subtract one token
//! from another:
//!
//! ```text
//! w_ij = g (z_ij - mean_j z_ij) / (std_j z_ij + eps) + b,    z_ij = q_i . k_j
//! ```
//!
//! | type | what it is |
//! |---|---|
//! | [`NormalizedAttention`] | the layer, in place of burn's `MultiHeadAttention`: self- and cross-attention, masks, dropout, in linear time where the mask allows it |
//! | [`NormalizedAttention::forward_causal`], [`step`](NormalizedAttention::step) with a [`NapState`] | causal attention: training in linear time, decoding in constant time and memory per token |
//! | [`EncoderLayer`], [`Encoder`] | the paper's layer and model; [`Encoder::from_checkpoint`] reads what the program `nap` trained |
//!
//! ```
//! use burn::tensor::{Device, Distribution, Tensor};
//! use nap_burn::{NapInput, NapState, NormalizedAttentionConfig};
//!
//! let device = Device::default();
//! let attention = NormalizedAttentionConfig::new(64, 4).with_inner_norm(true).init(&device);
//! let x = Tensor::<3>::random([2, 10, 64], Distribution::Default, &device);
//!
//! let output = attention.forward(NapInput::self_attn(x.clone()));
//! assert_eq!(output.context.dims(), [2, 10, 64]);
//!
//! // Causal: the whole sequence, or token by token.
//! let whole = attention.forward_causal(x.clone());
//! let mut state = NapState::default();
//! for t in 0..10 {
//!     let next = attention.step(x.clone().narrow(1, t, 1), &mut state);
//!     assert!(next.all_close(whole.clone().narrow(1, t, 1), Some(1e-3), Some(1e-4)));
//! }
//! ```
//!
//! The guide, with measurements, pitfalls, and when to use it, is `docs/burn.md` of the repository.
//!
//! Source: O. Richter and R. Wattenhofer, "Normalized Attention Without Probability Cage",
//! arXiv 2005.09561. The linear-time and causal forms are this project's.

mod aggregate;
mod attention;
mod causal;
mod checkpoint;
mod encoder;

pub use attention::{
    AttentionForm, LAYER_NORM_EPSILON, NapInput, NapOutput, NormalizedAttention,
    NormalizedAttentionConfig,
};
pub use causal::NapState;
pub use checkpoint::LoadError;
pub use encoder::{Encoder, EncoderConfig, EncoderLayer, EncoderLayerConfig, Readout};

/// The guide's programs, compiled.
#[cfg(doctest)]
#[doc = include_str!("../../../docs/burn.md")]
struct Guide;
