"""One wrapper a framework, all behind one small contract; a framework is imported only when it is asked for."""
