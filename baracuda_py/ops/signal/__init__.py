"""Signal processing: spectra of windows, cosine transforms, filters, other rates."""
