"""Examples of the functions of spectra, filters and other rates: rows of `TABLE`."""

from __future__ import annotations

_RNG = "rng = np.random.default_rng(0)\n"
_X = f"{_RNG}x = rng.standard_normal((2, 256), dtype=np.float32)\n"
_PAIR = f"{_RNG}x, y = rng.standard_normal((2, 2, 256), dtype=np.float32)\n"

SOUNDS: dict[str, str] = {
    "amplitude_to_db": "x = np.float32([1, 0.1, 0.001])\ny = bc.amplitude_to_db(x, top_db=20.0)",
    "analytic_signal": f"{_X}y = bc.analytic_signal(x)",
    "biquad": f"{_X}y = bc.biquad(x, 0.2, 0.4, 0.2, 1.0, -0.4, 0.2)",
    "deemphasis": f"{_X}y = bc.deemphasis(x, 0.9)",
    "filtfilt": f"{_X}y = bc.filtfilt([0.2, 0.2], [1.0, -0.6], x)",
    "lfilter": f"{_X}y = bc.lfilter([0.2, 0.4, 0.2], [1.0, -0.4, 0.2], x)",
    "lfilter_zi": "b, a = np.float32([0.2, 0.2]), np.float32([1, -0.6])\nzi = bc.lfilter_zi(b, a)",
    "preemphasis": f"{_X}y = bc.preemphasis(x, 0.9)",
    "sosfilt": f"{_X}y = bc.sosfilt([[0.2, 0.4, 0.2, 1.0, -0.4, 0.2]], x)",
    "freqz": "b = np.float32([0.2, 0.4, 0.2])\nw, h = bc.freqz(b, [1.0, -0.4, 0.2], 64)",
    "medfilt": f"{_X}y = bc.medfilt(x, 5, axis=1)",
    "resample": f"{_X}y = bc.resample(x, 100, axis=1)",
    "resample_poly": f"{_X}y = bc.resample_poly(x, 3, 2, axis=1)",
    "savgol_filter": f"{_X}y = bc.savgol_filter(x, 7, 2)",
    "sinc_resample": f"{_X}y = bc.sinc_resample(x, 16000, 12000)",
    "upfirdn": f"{_X}y = bc.upfirdn([0.5, 1.0, 0.5], x, up=2)",
    "coherence": f"{_PAIR}f, c = bc.coherence(x, y, fs=100.0, nperseg=64)",
    "csd": f"{_PAIR}f, p = bc.csd(x, y, fs=100.0, nperseg=64)",
    "fftconvolve": f"{_PAIR}z = bc.fftconvolve(x, y, 'same', axis=1)",
    "long_convolution": f"""{_RNG}x = rng.standard_normal((2, 4, 256), dtype=np.float32)
filter, skip = rng.standard_normal((4, 256), dtype=np.float32), np.ones(4, np.float32)
y = bc.long_convolution(x, filter, skip)""",
    "periodogram": f"{_X}f, p = bc.periodogram(x, fs=100.0)",
    "welch": f"{_X}f, p = bc.welch(x, fs=100.0, nperseg=64)",
    "db_to_amplitude": "x = np.float32([0, -10, -20])\ny = bc.db_to_amplitude(x, power=0.5)",
    "griffin_lim": f"{_X}s = bc.spectrogram(x, 32)\ny = bc.griffin_lim(s, 32, n_iter=4, length=256)",
    "istft": f"{_X}z = bc.stft(x, 32)\ny = bc.istft(z, 32, length=256)",
    "mel_spectrogram": f"{_X}y = bc.mel_spectrogram(x, 16000, n_fft=64, n_mels=8)",
    "mfcc": f"{_X}y = bc.mfcc(x, 16000, n_mfcc=4, n_fft=64, n_mels=8)",
    "mu_law_decoding": "codes = np.arange(0, 256, 51)\ny = bc.mu_law_decoding(codes)",
    "mu_law_encoding": "x = np.float32([-1, -0.1, 0, 0.1, 1])\ny = bc.mu_law_encoding(x)",
    "phase_vocoder": f"""{_X}z = bc.stft(x, 32, 8)
advance = np.linspace(0, 8 * np.pi, 17, dtype=np.float32)[:, None]
y = bc.phase_vocoder(z, 1.5, advance)""",
    "spectrogram": f"{_X}y = bc.spectrogram(x, n_fft=32, power=1.0)",
    "stft": f"{_X}z = bc.stft(x, 32, window=bc.hann_window(32))",
    **{
        name: f"{_RNG}x = rng.standard_normal((3, 8), dtype=np.float32)\ny = bc.{name}(x, 2, norm='ortho')"
        for name in ("dct", "idct", "dst", "idst", "dctn", "idctn", "dstn", "idstn")
    },
}
