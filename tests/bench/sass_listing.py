"""A listing as `nvdisasm -c` prints it: a loop that multiplies and copies, stores a result in few iterations, and has a loop
inside that adds up; padding after the end; and a second kernel that is unrolled."""

LISTING = """\
\t.headerflags\t@"EF_CUDA_SM90"
//--------------------- .text.looping --------------------------
\t.section\t.text.looping,"ax",@progbits
.text.looping:
        /*0000*/                   LDC R1, c[0x0][0x28] ;
        /*0010*/                   BRA `(.L_x_0) ;
.L_x_5:
        /*0020*/                   IADD3 R9, R9, 0x1, RZ ;
        /*0030*/                   BRA `(.L_x_1) ;
.L_x_0:
        /*0040*/                   LDSM.16.M88.4 R4, [R2] ;
        /*0050*/                   HMMA.16816.F32 R8, R4, R6, R8 ;
        /*0060*/                   HMMA.16816.F32 R12, R4, R7, R12 ;
        /*0070*/              @!P0 BRA `(.L_x_2) ;
.L_x_3:
        /*0080*/                   FADD R8, R8, R20 ;
        /*0090*/               @P2 BRA `(.L_x_3) ;
        /*00a0*/                   STG.E desc[UR4][R16.64], R8 ;
.L_x_2:
        /*00b0*/                   HFMA2.MMA R3, -RZ, RZ, 0, 0 ;
        /*00c0*/               @P3 BRA `(.L_x_4) ;
        /*00d0*/                   LDGSTS.E.BYPASS.128 [R19], desc[UR10][R12.64] ;
.L_x_4:
        /*00e0*/                   FSETP.GEU.AND P6, PT, |R32|, +INF , PT ;
        /*00f0*/              @!P6 IMAD.IADD.U32 R32, R32, 0x1, R58 ;
        /*0100*/                   BAR.SYNC.DEFER_BLOCKING 0x0 ;
        /*0110*/               @P1 BRA `(.L_x_5) ;
.L_x_1:
        /*0120*/               @P4 BRA `(.L_x_0) ;
        /*0130*/                   EXIT ;
.L_x_6:
        /*0140*/                   BRA `(.L_x_6);
        /*0150*/                   NOP;
.L_x_7:
//--------------------- .text.unrolled --------------------------
.text.unrolled:
        /*0000*/                   FFMA R1, R2, R3, R1 ;
        /*0010*/                   FFMA R4, R2, R5, R4 ;
        /*0020*/                   EXIT ;
.L_x_8:
        /*0030*/                   BRA `(.L_x_8);
        /*0040*/                   NOP;
"""
