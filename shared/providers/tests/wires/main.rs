//! The wires, on scripted HTTP.

mod anthropic;
mod bad_input;
mod bedrock;
mod elsewhere;
mod ends;
mod gemini;
mod images;
mod nulls;
mod odd;
mod openai;
mod refused;
mod responses;
mod stage;
