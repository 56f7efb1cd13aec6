//! A scripted fake of an AI video provider.
