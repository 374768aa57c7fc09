"""Mathematics of compressed and private sums of a fleet's answers, in NumPy.

    quantization     numbers as few-bit integers, rounded without bias
    modular          signed integers as numbers of a few bits, and back
    bit_packing      integers of any number of bits as bytes
    seeds            seeds and words of masks, from keys
    masks            sums of answers of which none is seen alone
    clipping         answers of bounded norm, and Gaussian noise
    accounting       the epsilon of differential privacy that noise gives

A robot clips its change of the weights and adds noise, quantizes, masks and packs it; the server
unpacks and adds up answers in integers, removes the masks of the sum, and dequantizes it. Each
step stands for itself and may be left out.
"""
